-- While a session holds an old snapshot, the server removes no dead row. What every message changes must then be found without a
-- walk over the dead rows before it (decision 0043).

-- How many messages an endpoint has sent; no row if it has sent none. As a column of the endpoint's row, each SEND left a dead
-- version of that wide row, with entries in five indexes once its page was full. Every 32nd message moves the row to the next
-- bucket of the key: a search from the highest bucket on meets 32 versions at most, and without an old snapshot 31 of 32 SENDs
-- write no index.
CREATE TABLE dialoq.send_counter (
    endpoint_id bigint NOT NULL,
    bucket bigint NOT NULL,
    send_sequence bigint NOT NULL,
    PRIMARY KEY (endpoint_id, bucket)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);
INSERT INTO dialoq.send_counter (endpoint_id, bucket, send_sequence)
SELECT e.endpoint_id, e.send_sequence / 32, e.send_sequence FROM dialoq.conversation_endpoint AS e;
ALTER TABLE dialoq.conversation_endpoint DROP COLUMN send_sequence;
