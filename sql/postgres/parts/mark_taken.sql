-- Marks the jobs placed as taken, each by its reader (item).
UPDATE dialoq.job AS j
SET state = 2, attempts = j.attempts + 1,
    token = nextval('dialoq.next_job_token'), due_at = p_untils[p.item], taken_at = p_now,
    taken_by = coalesce(p_taken_by[p.item], ''), progress = NULL, process = p_process, holder = p_holders[p.item]
FROM placed AS p
WHERE j.job_id = p.job_id
RETURNING p.item, p.place, j.job_id, j.token, j.job_type, j.job_key, j.level, j.attempts, j.pushed_at, j.pushed_by,
    j.due_at, j.last_error, j.body
