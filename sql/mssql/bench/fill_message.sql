-- Puts rows into the rival's table, all of one body; it is not measured.
-- Takes: the body, how many
-- Gives: nothing
WITH ten AS (SELECT n FROM (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)) AS t (n))
INSERT INTO dbo.dialoq_bench_message (body)
SELECT TOP (CONVERT(bigint, @P2)) CONVERT(varbinary(max), @P1)
FROM ten AS a CROSS JOIN ten AS b CROSS JOIN ten AS c CROSS JOIN ten AS d CROSS JOIN ten AS e CROSS JOIN ten AS f;
