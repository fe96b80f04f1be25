-- Removes the oldest finished jobs that the history need not keep, 2000 at most. Those of a time that is still to come, after the clock
-- was ahead for a while, are passed over.
-- Takes: ?1 queue_id, ?2 finished_before, ?3 first_number, the first number that is kept whatever its age, ?4 the time
-- Gives: nothing
DELETE FROM dialoq_job_history
WHERE queue_id = ?1
    AND finish_number IN (
        SELECT finish_number FROM dialoq_job_history
        WHERE queue_id = ?1 AND (finished_at <= ?4 OR finish_number < ?3)
        ORDER BY finish_number
        LIMIT 2000)
    AND (finish_number < ?3 OR finished_at < ?2)
