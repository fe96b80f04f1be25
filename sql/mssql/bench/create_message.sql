-- The rival: a table queue as it is written by hand.
-- Takes: nothing
-- Gives: nothing
IF OBJECT_ID('dbo.dialoq_bench_message') IS NOT NULL DROP TABLE dbo.dialoq_bench_message;
CREATE TABLE dbo.dialoq_bench_message (
    id bigint IDENTITY NOT NULL PRIMARY KEY,
    body varbinary(max) NOT NULL
);
