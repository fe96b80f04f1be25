-- Reads every row, the oldest first, for opening the file.
-- Takes: nothing
-- Gives: unit_id, done_at
SELECT unit_id, done_at FROM dialoq_done_unit ORDER BY done_at
