-- The installation as one text, for sqlcmd -b or any program that cuts a text into batches at GO. It is done whole or not at
-- all: an error rolls back, and NOEXEC keeps the batches after it from running. Filtered indexes need these settings, and
-- sqlcmd begins with QUOTED_IDENTIFIER OFF.
SET ANSI_NULLS, QUOTED_IDENTIFIER, ANSI_PADDING, ANSI_WARNINGS, ARITHABORT, CONCAT_NULL_YIELDS_NULL ON;
SET NUMERIC_ROUNDABORT OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET IMPLICIT_TRANSACTIONS OFF;
SET XACT_ABORT ON;
SET NOCOUNT ON;
GO
BEGIN TRANSACTION;
-- <steps>
COMMIT TRANSACTION;
SET LOCK_TIMEOUT -1;
GO
SET NOEXEC OFF;
GO
