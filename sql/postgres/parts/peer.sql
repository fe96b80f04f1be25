-- The other side c of the endpoint e, if it may get messages.
WHERE c.conversation_id = e.conversation_id AND c.is_initiator = NOT e.is_initiator AND c.state = 'CO'
    AND NOT c.is_system
    -- <conversing>
