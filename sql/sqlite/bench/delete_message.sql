-- The rival's receive: one row by its key, which is one transaction.
-- takes the id; gives nothing.
DELETE FROM message WHERE id = ?1;
