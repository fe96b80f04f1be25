-- The first message that the transaction had received. If it is gone, another transaction has handled it since.
ALTER TABLE dialoq.receive_attempt ADD COLUMN first_order bigint;
