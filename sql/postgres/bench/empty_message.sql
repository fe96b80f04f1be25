-- Empties the rival; nobody measures it.
-- Takes: nothing
-- Gives: nothing
TRUNCATE dialoq_bench_message;
