-- Work queues: what takes lock, the order of the jobs of a key, and tokens that never repeat.

-- A take of a queue with limits locks its row, to the end of its transaction. Every role that may connect could take an
-- advisory lock, and stop the queue with it.
CREATE TABLE dialoq.work_limit (
    queue_id integer PRIMARY KEY
);
INSERT INTO dialoq.work_limit (queue_id) SELECT q.queue_id FROM dialoq.work_queue AS q;

-- The jobs of a queue of ORDER = FIFO_STRICT have the rank -1, so that only they are in this index: the first ready job of
-- each key is the only one that may be taken.
CREATE INDEX job_strict ON dialoq.job (queue_id, job_key, take_order) WHERE state = 1 AND rank_from_top = -1;
UPDATE dialoq.job AS j SET rank_from_top = -1
FROM dialoq.work_queue AS q
WHERE q.queue_id = j.queue_id AND q.work_order = 'FIFO_STRICT';

-- Tokens are below the mark, and the mark is on the disk before them. A take in a transaction of a client is not: if the
-- server falls, the sequence may go back behind tokens that readers have. The server empties job_token_run after a fall and
-- keeps it over a clean stop, so that the next take begins above the mark.
CREATE TABLE dialoq.job_token_mark (
    is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    mark bigint NOT NULL
);
INSERT INTO dialoq.job_token_mark (mark) VALUES (0);
CREATE UNLOGGED TABLE dialoq.job_token_run (
    mark bigint NOT NULL
);
