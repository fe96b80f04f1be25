-- In a session that serves no caller: a limit that the role or the database sets would stop a background step or an installation
-- each time it is tried. A limit on idle sessions would end one that listens, or holds messages for callers.
-- Takes: nothing
-- Gives: nothing
SET statement_timeout = 0;
SET idle_session_timeout = 0
