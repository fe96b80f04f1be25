-- Whether a database has the broker's tables and not one row in them: its making was cut short.
-- Takes: nothing
-- Gives: 1 or 0
SELECT NOT EXISTS (SELECT 1 FROM dialoq_broker)
    AND NOT EXISTS (SELECT 1 FROM dialoq_message_type)
    AND NOT EXISTS (SELECT 1 FROM dialoq_service_contract)
    AND NOT EXISTS (SELECT 1 FROM dialoq_service_queue)
    AND NOT EXISTS (SELECT 1 FROM dialoq_service)
    AND NOT EXISTS (SELECT 1 FROM dialoq_conversation_endpoint)
    AND NOT EXISTS (SELECT 1 FROM dialoq_queue_message)
    AND NOT EXISTS (SELECT 1 FROM dialoq_retained_message)
    AND NOT EXISTS (SELECT 1 FROM dialoq_transmission)
