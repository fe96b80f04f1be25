-- The rival: a table queue as it is written by hand, kept clean as eagerly as the broker's own tables.
-- Takes: nothing
-- Gives: nothing
DROP TABLE IF EXISTS dialoq_bench_message;
CREATE TABLE dialoq_bench_message (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    body bytea NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE dialoq_bench_message ALTER COLUMN body SET STORAGE EXTERNAL;
