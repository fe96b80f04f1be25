-- Removes what earlier rounds left behind on both sides, so that none pays for another. Nobody measures it.
-- Takes: nothing
-- Gives: nothing
VACUUM dialoq.queue_message, dialoq.ready_group, dialoq.conversation_endpoint, dialoq_bench_message;
