-- The rival's send: one row, which is one transaction.
-- takes the body; gives nothing.
INSERT INTO message (body) VALUES (?1);
