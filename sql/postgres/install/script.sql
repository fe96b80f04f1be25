-- The installation as one text, for psql -v ON_ERROR_STOP=1 or any other program. It is done whole or not at all.
BEGIN;
-- <steps>
COMMIT;
