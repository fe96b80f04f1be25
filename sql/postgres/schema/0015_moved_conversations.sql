-- What a search for the oldest message of a conversation may rely on after a MOVE.

ALTER TABLE dialoq.conversation_endpoint
    -- The request for the recheck after its last MOVE; NULL once that is done. Until then a message of the endpoint may be announced
    -- to a group that it has left: the rows of its own group do not say how old its messages are.
    ADD COLUMN moved_recheck_id bigint;
UPDATE dialoq.conversation_endpoint AS e SET moved_recheck_id = u.recheck_id
FROM (SELECT n.endpoint_id, max(n.recheck_id) AS recheck_id FROM dialoq.recheck_queue AS n GROUP BY n.endpoint_id) AS u
WHERE e.endpoint_id = u.endpoint_id;
