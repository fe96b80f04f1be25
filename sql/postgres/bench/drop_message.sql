-- Removes the rival.
-- Takes: nothing
-- Gives: nothing
DROP TABLE IF EXISTS dialoq_bench_message;
