-- Reads every row, for opening the file.
-- Takes: nothing
-- Gives: endpoint_id, receive_sequence
SELECT
    endpoint_id, receive_sequence
FROM dialoq_receive_sequence ORDER BY endpoint_id
