-- Rechecks wait for every transaction of the server that has a number.
ALTER TABLE dialoq.recheck_queue
    -- Whether a message may be announced to a group, a queue or a level where no search finds it, or wait although its way is free.
    -- tick looks for such messages before the recheck too.
    ADD COLUMN may_hide boolean NOT NULL DEFAULT false;
CREATE INDEX recheck_queue_hiding ON dialoq.recheck_queue (recheck_id) WHERE may_hide;
UPDATE dialoq.recheck_queue SET may_hide = true;
