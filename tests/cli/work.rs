//! `dialoq work`

use crate::shop::Shop;
use serde_json::Value;

/// A shop with the work queue `emails` and so many jobs.
fn emails(options: &str, jobs: usize) -> Shop {
    let shop = Shop::empty();
    shop.ok_with(&["apply", "-"], format!("CREATE WORK QUEUE emails {options};").as_bytes());
    for job in 0..jobs {
        shop.ok(&["work", "push", "emails", &job.to_string()]);
    }
    shop
}

fn dead(shop: &Shop) -> Vec<Value> {
    shop.json(&["--json", "work", "list", "emails", "--state", "dead"])
}

#[cfg(unix)]
#[test]
fn a_program_that_fails_leaves_its_last_words_with_the_job() {
    let _limit = crate::limit();
    let shop = emails("WITH MAX_ATTEMPTS = 1", 1);
    let script = "i=0; while [ $i -lt 300 ]; do echo 'a line of no interest' >&2; i=$((i+1)); done; echo 'no such address' >&2; exit 3";
    let running = shop.start(&["work", "run", "emails", "--activated", "--exec", "sh", "--", "-c", script]);
    let failed = loop {
        if let [job] = &dead(&shop)[..] {
            break job["last_error"].as_str().unwrap().to_owned();
        }
    };
    assert!(failed.starts_with("program 'sh' ended with exit status: 3: "), "{failed}");
    assert!(failed.ends_with("no interest\nno such address"), "{failed}");
    assert!(failed.len() < 2100, "{}", failed.len());
    running.interrupt();
    let (code, error) = running.end();
    assert_eq!(code, Some(130), "{error}");
    assert!(error.contains("no such address") && error.contains("completed 0, failed 1, lost 0"), "{error}");
}

#[test]
fn one_job_is_called_one_job() {
    let _limit = crate::limit();
    let shop = emails("", 2);
    assert_eq!(shop.ok(&["work", "cancel", "--job", "1"]).trim(), "would cancel 1 job; --yes does it");
    assert_eq!(shop.ok(&["work", "cancel", "emails"]).trim(), "would cancel 2 jobs; --yes does it");
    assert_eq!(shop.ok(&["work", "cancel", "--job", "1", "--yes"]).trim(), "cancelled 1 job");
}

#[test]
fn a_report_on_a_job_that_no_reader_took_says_so() {
    let _limit = crate::limit();
    let shop = emails("", 1);
    let refused = shop.fails(1, &["work", "complete", "1", "7"]);
    assert!(refused.contains("60042") && refused.contains("no reader has taken it yet"), "{refused}");
}
