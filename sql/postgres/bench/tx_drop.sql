-- Removes the tables of transactions.
-- Takes: nothing
-- Gives: nothing
DROP TABLE IF EXISTS dialoq_bench_row, dialoq_bench_answer;
