-- The number of the schema's last change, by any program.
-- Takes: nothing
-- Gives: schema_version
PRAGMA schema_version
