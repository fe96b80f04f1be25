-- Removes the views, which are written anew whenever their text has changed.
DROP VIEW IF EXISTS queue_messages;
DROP VIEW IF EXISTS sys_dm_broker_activated_tasks;
DROP VIEW IF EXISTS sys_dm_broker_queue_monitors;
DROP VIEW IF EXISTS sys_transmission_queue;
DROP VIEW IF EXISTS sys_conversation_endpoints;
DROP VIEW IF EXISTS dialoq_received;
DROP VIEW IF EXISTS sys_databases;
DROP VIEW IF EXISTS sys_remote_service_bindings;
DROP VIEW IF EXISTS sys_routes;
DROP VIEW IF EXISTS sys_conversation_priorities;
DROP VIEW IF EXISTS sys_conversation_groups;
DROP VIEW IF EXISTS sys_service_queues;
DROP VIEW IF EXISTS sys_service_message_types;
DROP VIEW IF EXISTS sys_service_contract_usages;
DROP VIEW IF EXISTS sys_service_contract_message_usages;
DROP VIEW IF EXISTS sys_service_contracts;
DROP VIEW IF EXISTS sys_services;
