-- The version that is installed.
-- Takes: nothing
-- Gives: schema_version, logic_hash, installed_by
SELECT schema_version, logic_hash, installed_by
FROM dialoq.installed
