-- Empties the tables of transactions; it is not measured.
-- Takes: nothing
-- Gives: nothing
TRUNCATE dialoq_bench_row, dialoq_bench_answer;
