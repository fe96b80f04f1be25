//! BEGIN DIALOG.

use crate::rig::{Text, code};
use dialoq::protocol::{Addressee, Relation};
use dialoq::{ConversationHandle, GroupId};
use std::collections::HashSet;
use uuid::Uuid;

case!(unknown_sender_or_contract, [63], async |t| {
    assert!(t.begin_dialog(t.to_target().from("Missing")).await.is_err());
    assert_eq!(code(t.begin_dialog(t.to_target().on("Nothing")).await), 8425);
    assert!(t.endpoints().await?.is_empty());
});

case!(unknown_target_is_no_error, [64], async |t| {
    let dialog = t.begin_dialog(t.to("Missing")).await?.handle;
    assert_eq!(t.state(dialog).await?, "SO");
});

case!(one_endpoint_and_nothing_at_the_target, [65, 66], async |t| {
    let began = t.begin_dialog(t.to_target()).await?;
    let endpoints = t.endpoints().await?;
    assert_eq!(endpoints.len(), 1);
    let endpoint = &endpoints[0];
    assert_eq!(endpoint.handle, began.handle);
    assert_eq!(endpoint.conversation_id, began.conversation_id);
    assert_eq!(endpoint.group, began.group);
    assert_eq!((endpoint.state.as_str(), endpoint.is_initiator), ("SO", true));
    assert_eq!(t.groups().await?, [began.group]);
    assert!(t.receive("QT").await?.is_empty());
});

case!(contract_defaults_to_default, [67], async |t| {
    let dialog = t.begin_dialog(t.to("Plain").without_contract()).await?.handle;
    t.send_default(dialog, "x").await?;
    assert_eq!(&*t.receive("QPlain").await?[0].service_contract_name, "DEFAULT");
});

case!(lifetimes, [68, 69], async |t| {
    let now = t.now();
    let longest = t.dialog().await?;
    let right = now.after_seconds(2_147_483_647);
    assert_eq!(t.endpoint(longest).await?.expect("it was begun").lifetime, right);
    let short = t.begin_dialog(t.to_target().lifetime(90)).await?.handle;
    assert_eq!(t.endpoint(short).await?.expect("it was begun").lifetime, now.after_seconds(90));
    for bad in [0, -1, 2_147_483_648] {
        assert_eq!(code(t.begin_dialog(t.to_target().lifetime(bad)).await), 8411, "{bad}");
    }
    t.begin_dialog(t.to_target().lifetime(2_147_483_647)).await?;
    // DIFFERENCE(typed-nulls): a lifetime cannot be NULL in the typed face, so nothing raises 8406.
});

case!(related_to_an_unknown_conversation, [70], async |t| {
    let unknown = ConversationHandle(Uuid::from_u128(77));
    assert!(t.begin_dialog(t.to_target().related_to(unknown)).await.is_err());
    assert!(t.endpoints().await?.is_empty());
});

case!(related_to_one_that_has_ended, [70], async |t| {
    for how in ["end", "error", "cleanup"] {
        let pair = t.pair().await?;
        let tx = t.begin().await?;
        match how {
            "end" => tx.end(pair.initiator).await?,
            "error" => tx.end_with_error(pair.initiator, 3, "x").await?,
            _ => tx.cleanup(pair.initiator).await?,
        }
        // DIFFERENCE(reads-committed): in the embedded store its row goes at the commit.
        let expected = if t.store().is_server() { 8426 } else { 9601 };
        assert_eq!(code(tx.begin_dialog(t.to_target().related_to(pair.initiator)).await), expected, "{how}");
        tx.commit().await?;
        assert_eq!(code(t.begin_dialog(t.to_target().related_to(pair.initiator)).await), 8426, "{how}");
    }
    let kept = t.pair().await?;
    t.end(kept.target).await?;
    let to_initiator = t.to_target().related_to(kept.target);
    assert_eq!(code(t.begin_dialog(to_initiator).await), 9601, "its row stays");
});

case!(related_conversations_share_a_group, [71], async |t| {
    let one = t.begin_dialog(t.to_target()).await?;
    let two = t.begin_dialog(t.to_target().related_to(one.handle)).await?;
    assert_eq!(one.group, two.group);
    assert_eq!(t.endpoint(two.handle).await?.expect("it was begun").group, one.group);
    assert_eq!(t.groups().await?, [one.group]);
});

case!(groups_may_be_chosen, [72], async |t| {
    let chosen = GroupId(Uuid::from_u128(4711));
    let began = t.begin_dialog(t.to_target().in_group(chosen)).await?;
    assert_eq!(began.group, chosen);
    assert_eq!(t.groups().await?, [chosen]);
    let again = t.begin_dialog(t.to_target().in_group(chosen)).await?;
    assert_eq!(again.group, chosen);
    assert_eq!(t.groups().await?, [chosen]);
});

case!(groups_belong_to_one_service, [73], async |t| {
    let one = t.begin_dialog(t.to_target()).await?;
    t.define("CREATE SERVICE [B] ON QUEUE [QI]").await?;
    // A refused verb does not wait for the holder of the group.
    let holder = t.begin().await?;
    holder.send(one.handle, "Text", "held").await?;
    for related in [Relation::Group(one.group), Relation::Conversation(one.handle)] {
        let mut begin = t.to_target().from("B");
        begin.related = related;
        assert_eq!(code(t.begin_dialog(begin).await), 9610, "{related:?}");
    }
    holder.commit().await?;
});

case!(a_new_group_is_locked, [74], async |t| {
    let tx = t.begin().await?;
    let began = tx.begin_dialog(t.to_target()).await?;
    // Others do not even see it before the commit, so they can neither receive from it nor send on it.
    assert!(t.receive_from("QI", began.handle).await.map_or(true, |rows| rows.is_empty()));
    let other = t.clone();
    let mut joining = Box::pin(async move { other.begin_dialog(other.to_target().in_group(began.group)).await });
    t.still_waits(&mut joining).await;
    tx.commit().await?;
    assert_eq!(joining.await?.group, began.group);
    assert!(t.receive_from("QI", began.handle).await?.is_empty());
});

case!(rolled_back_dialogs_leave_nothing, [75], async |t| {
    let tx = t.begin().await?;
    let began = tx.begin_dialog(t.to_target()).await?;
    tx.send(began.handle, "Text", "never").await?;
    tx.rollback().await?;
    assert!(t.endpoints().await?.is_empty());
    assert!(t.groups().await?.is_empty());
    assert!(t.receive("QT").await?.is_empty());
    assert_eq!(code(t.send(began.handle, "Text", "x").await), 8426);
});

case!(current_database_is_this_broker, [76], async |t| {
    let mut begin = t.to_target();
    begin.addressee = Addressee::CurrentDatabase;
    let dialog = t.begin_dialog(begin).await?.handle;
    let guid = t.database().await?.uuid("service_broker_guid");
    let far = t.endpoint(dialog).await?.expect("it was begun").far_broker_instance.expect("it is named");
    assert_eq!(Uuid::parse_str(&far).ok(), Some(guid));
    t.send(dialog, "Text", "arrives").await?;
    assert_eq!(t.receive("QT").await?.texts(), ["arrives"]);
});

case!(ids_are_unique, [77], async |t| {
    let pairs = [t.pair().await?, t.pair().await?];
    let endpoints = t.endpoints().await?;
    assert_eq!(endpoints.len(), 4);
    assert_eq!(endpoints.iter().map(|endpoint| endpoint.handle).collect::<HashSet<_>>().len(), 4);
    assert_eq!(endpoints.iter().map(|endpoint| endpoint.group).collect::<HashSet<_>>().len(), 4);
    assert_eq!(endpoints.iter().map(|endpoint| endpoint.conversation_id).collect::<HashSet<_>>().len(), 2);
    for pair in pairs {
        let of = |handle| endpoints.iter().find(|endpoint| endpoint.handle == handle).expect("the endpoint");
        assert_eq!(of(pair.initiator).conversation_id, of(pair.target).conversation_id);
        assert!(of(pair.initiator).is_initiator && !of(pair.target).is_initiator);
    }
});

case!(unusable_arguments, [63, 70, 73], async |t| {
    let far = "x".repeat(257);
    assert_eq!(code(t.begin_dialog(t.to(&far)).await), 8412);
    assert_eq!(code(t.begin_dialog(t.to("")).await), 8412);
    let mut begin = t.to_target();
    begin.addressee = Addressee::Instance("not a guid".into());
    assert_eq!(code(t.begin_dialog(begin).await), 8413);
    for here in ["CURRENT DATABASE", "current Database"] {
        let mut begin = t.to_target();
        begin.addressee = Addressee::Instance(here.into());
        t.begin_dialog(begin).await?;
    }
    assert_eq!(code(t.begin_dialog(t.to_target().in_group(GroupId(Uuid::nil()))).await), 8414);
    let pair = t.pair().await?;
    t.end(pair.target).await?;
    let mut begin = t.to("I").from("T");
    begin.related = Relation::Conversation(pair.target);
    assert_eq!(code(t.begin_dialog(begin).await), 9601, "the conversation has ended");
});
