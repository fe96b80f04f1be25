-- What the user's transaction of either side writes for a message.
-- Takes: the length of the body
-- Gives: nothing
INSERT INTO dialoq_bench_row (length) VALUES ($1);
