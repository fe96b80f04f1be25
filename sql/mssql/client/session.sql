-- Makes a new connection what every text of ours expects: an error of one statement leaves its transaction open, locks
-- are waited for, and texts and bodies come whole.
-- Takes: nothing.
-- Gives: is_babelfish, 1 if the server is not SQL Server itself but Babelfish.
SET XACT_ABORT OFF;
SET IMPLICIT_TRANSACTIONS OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET LOCK_TIMEOUT -1;
SET TEXTSIZE 2147483647;
SET ANSI_NULLS ON;
SET ANSI_PADDING ON;
SET ANSI_WARNINGS ON;
SET ARITHABORT ON;
SET CONCAT_NULL_YIELDS_NULL ON;
SET QUOTED_IDENTIFIER ON;
SELECT COALESCE(CAST(SERVERPROPERTY('Babelfish') AS int), 0) AS is_babelfish;
