-- While a session holds an old snapshot, the server removes no dead row (decision 0043).

-- Batches read the latest row of ready_generation anyway.
ALTER TABLE dialoq.ready_generation
    -- Batches read the system's messages and the transmission queue for each of their endpoints at once, and not first whether
    -- there is any: the answer would walk over many dead rows (rules/endpoint.sql, watch_dead_rows).
    ADD COLUMN asks_each boolean NOT NULL DEFAULT false,
    -- When that is looked at next.
    ADD COLUMN asks_next_at timestamptz NOT NULL DEFAULT '-infinity';
