-- Pushes jobs of one body into the work queue of the bench, a thousand a call; it is not measured.
-- Takes: the body, how many
-- Gives: nothing
SELECT count(*)
FROM generate_series(1, ($2::bigint + 999) / 1000) AS c (n)
-- With an argument that depends on the call, so that it is made each time.
CROSS JOIN LATERAL (SELECT ARRAY[least(c.n, 0)::integer + 1000] AS of) AS l
CROSS JOIN LATERAL dialoq.push_job_batch('bench_jobs', array_fill(''::text, l.of), array_fill(NULL::text, l.of), array_fill(5, l.of),
    array_fill(NULL::bigint, l.of), array_fill(NULL::bigint, l.of), array_fill($1::bytea, l.of), array_fill('bench'::text, l.of)) AS p;
