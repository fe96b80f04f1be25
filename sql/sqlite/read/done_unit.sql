-- Reads whether a unit has happened.
-- Takes: ?1 unit_id
-- Gives: unit_id
SELECT unit_id FROM dialoq_done_unit WHERE unit_id = ?1
