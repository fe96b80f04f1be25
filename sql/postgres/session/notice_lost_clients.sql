-- Lets the server notice that this process is gone even while a statement of its waits for a lock. Needs PostgreSQL 14
-- and an operating system that can tell; where it is refused, nothing else is lost.
-- Takes: nothing
-- Gives: nothing
SET client_connection_check_interval = '2s';
