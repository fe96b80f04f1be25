-- Bodies of more than 1,024 bytes, of jobs that are not finished: the row of a job is written again when the job is taken, reported or
-- failed, and its body was written to the log each time. Jobs of an earlier version have theirs in their row.
CREATE TABLE dialoq_job_body (
    job_id INTEGER PRIMARY KEY,
    body BLOB NOT NULL
) STRICT;
