-- Empties the rival's table; it is not measured.
-- Takes: nothing
-- Gives: nothing
TRUNCATE dialoq_bench_message;
