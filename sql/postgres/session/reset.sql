-- Takes back what the user's own SQL may have left in a session: rights, settings, cursors, temporary objects, locks,
-- LISTENs. RESET ROLE gives the role that ALTER ROLE ... SET role names for this login: SET SESSION AUTHORIZATION takes it
-- away, and RESET ALL leaves it alone. Prepared statements stay, for Dialoq's own are among them. session/connect.sql follows,
-- frees the locks and sets what Dialoq needs.
-- Takes: nothing
-- Gives: nothing
SET SESSION AUTHORIZATION DEFAULT;
RESET ROLE;
RESET ALL;
CLOSE ALL;
UNLISTEN *;
DISCARD SEQUENCES;
DISCARD TEMP
