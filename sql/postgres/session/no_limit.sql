-- In a session that serves no caller: a limit that the role or the database sets would stop a background step or an installation
-- each time it is tried.
-- Takes: nothing
-- Gives: nothing
SET statement_timeout = 0
