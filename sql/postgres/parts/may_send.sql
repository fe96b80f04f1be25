-- Of the endpoint c: no message of it waits in the transmission queue, before which none may go, and it is CONVERSING.
AND (NOT v_asks_each AND NOT EXISTS (SELECT FROM dialoq.transmission)
    OR NOT EXISTS (SELECT FROM dialoq.transmission AS t WHERE t.endpoint_id = c.endpoint_id OFFSET 0))
-- <conversing>
