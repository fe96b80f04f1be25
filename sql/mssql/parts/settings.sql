-- The beginning of each procedure that roles.sql grants. The settings of the caller's session have no effect in the procedure;
-- SQL Server restores them at its end. A session whose driver sets no TEXTSIZE has 4096, and would get the beginning of a body that it
-- has received. A transaction that can only be rolled back is refused before the verb does anything.
-- Errors: 60020
SET NOCOUNT ON;
SET ROWCOUNT 0;
SET TEXTSIZE 2147483647;
SET LOCK_TIMEOUT -1;
SET ANSI_WARNINGS, ANSI_PADDING, ARITHABORT, CONCAT_NULL_YIELDS_NULL ON;
SET NUMERIC_ROUNDABORT OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF XACT_STATE() = -1 THROW 60020, N'the transaction can only be rolled back: an earlier statement of it failed', 1;
