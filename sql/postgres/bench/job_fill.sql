-- Pushes jobs of one body into the work queue of the bench, a thousand a call; it is not measured.
-- Takes: the body, how many
-- Gives: nothing
SELECT count(*)
FROM generate_series(1, ($2::bigint + 999) / 1000)
CROSS JOIN LATERAL dialoq.push_job_batch('bench_jobs', array_fill(''::text, ARRAY[1000]), array_fill(NULL::text, ARRAY[1000]),
    array_fill(5, ARRAY[1000]), array_fill(NULL::bigint, ARRAY[1000]), array_fill(NULL::bigint, ARRAY[1000]),
    array_fill($1::bytea, ARRAY[1000]), array_fill('bench'::text, ARRAY[1000])) AS p;
