-- Removes a work schedule.
-- Takes: ?1 schedule_id
-- Gives: nothing
DELETE FROM dialoq_work_schedule WHERE schedule_id = ?1
