-- What the user's transaction writes for a message that it receives.
-- takes the length of the body; gives nothing.
INSERT INTO bench_row (length) VALUES (?1)
