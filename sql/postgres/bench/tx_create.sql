-- The tables that a transaction of the user's writes, on both sides; the last is where the rival sends and answers.
-- Takes: nothing
-- Gives: nothing
DROP TABLE IF EXISTS dialoq_bench_row, dialoq_bench_answer;
CREATE TABLE dialoq_bench_row (length bigint NOT NULL)
    WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);
CREATE TABLE dialoq_bench_answer (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body bytea NOT NULL)
    WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);
