-- Writes that a unit has happened.
-- Takes: ?1 unit_id, ?2 done_at
-- Gives: nothing
INSERT INTO dialoq_done_unit (unit_id, done_at) VALUES (?1, ?2)
