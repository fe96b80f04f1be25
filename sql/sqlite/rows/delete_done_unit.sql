-- Removes the id of an old unit.
-- Takes: ?1 unit_id
-- Gives: nothing
DELETE FROM dialoq_done_unit WHERE unit_id = ?1
