-- Pushes jobs without a body that are due in a day into the work queue of the bench, a thousand a call; it is not measured.
-- Takes: nothing that counts, how many
-- Gives: nothing
SELECT count(*)
FROM generate_series(1, ($2::bigint + 999) / 1000) AS c (n)
-- With an argument that depends on the call, so that it is made each time.
CROSS JOIN LATERAL (SELECT ARRAY[least(c.n, 0)::integer + 1000] AS of) AS l
CROSS JOIN LATERAL dialoq.push_job_batch('bench_jobs', array_fill(''::text, l.of), array_fill(NULL::text, l.of), array_fill(5, l.of),
    array_fill(86400000::bigint, l.of), array_fill(NULL::bigint, l.of), array_fill(substr($1::bytea, 1, 0), l.of),
    array_fill('bench'::text, l.of)) AS p;
