//! The metrics of all mounts of a node on one page, for Prometheus.
//!
//! Each mount has its own page. A family of metrics stands once on the page of the node, with the samples of all mounts,
//! whose labels say which mount it is.

use crate::mounts::Shown;

/// What is said of each mount besides.
const UP: &str = "s3mount_csi_mount_up";

/// A metric: what is said about it, and its samples.
#[derive(Debug, Default)]
struct Family {
    name: String,
    about: String,
    samples: String,
}

/// The page of a node with these mounts.
pub(crate) fn page(mounts: &[Shown]) -> String {
    let about = format!("# HELP {UP} Whether the mount answers: 1 or 0.\n# TYPE {UP} gauge\n");
    let mut families = vec![Family { name: UP.to_owned(), about, samples: String::new() }];
    for shown in mounts {
        let labels = [("mount", &shown.mount), ("source", &shown.source), ("volume", &shown.volume)];
        let labels = labels.map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).join(",");
        let is_up = u8::from(shown.metrics.is_some());
        families[0].samples.push_str(&format!("{UP}{{{labels}}} {is_up}\n"));
        add(&mut families, shown.metrics.as_deref().unwrap_or_default(), &labels);
    }
    families.into_iter().map(|family| family.about + &family.samples).collect()
}

/// Adds the page of one mount.
fn add(families: &mut Vec<Family>, page: &str, labels: &str) {
    let mut at = 0;
    for line in page.lines().filter(|line| !line.is_empty()) {
        if let Some(about) = line.strip_prefix("# ") {
            // `HELP NAME TEXT`, then `TYPE NAME KIND`.
            let name = about.split(' ').nth(1).unwrap_or_default();
            let known = families.iter().position(|family| family.name == name);
            at = known.unwrap_or_else(|| {
                families.push(Family { name: name.to_owned(), ..Family::default() });
                families.len() - 1
            });
            let is_said = families[at].about.lines().any(|said| said == line);
            if !is_said {
                families[at].about.push_str(line);
                families[at].about.push('\n');
            }
            continue;
        }
        let sample = match line.split_once('{') {
            Some((name, rest)) => format!("{name}{{{labels},{rest}\n"),
            None => line.replacen(' ', &format!("{{{labels}}} "), 1) + "\n",
        };
        families[at].samples.push_str(&sample);
    }
}

/// The value of a label as it stands between quotes.
fn escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use super::{Shown, page};

    #[test]
    fn a_family_stands_once_with_the_samples_of_all_mounts() {
        let shown = |mount: &str, metrics: Option<&str>| Shown {
            mount: mount.to_owned(),
            volume: "v\"1".to_owned(),
            source: "s3://b/".to_owned(),
            metrics: metrics.map(str::to_owned),
        };
        let text = "# HELP a Reads.\n# TYPE a counter\na 1\n# HELP b Waits.\n# TYPE b histogram\nb_bucket{le=\"1\"} 2\n";
        let mounts = [shown("x", Some(text)), shown("y", Some(text)), shown("z", None)];
        let labels = |mount: &str| format!(r#"mount="{mount}",source="s3://b/",volume="v\"1""#);
        let (x, y, z) = (labels("x"), labels("y"), labels("z"));
        let expected = [
            "# HELP s3mount_csi_mount_up Whether the mount answers: 1 or 0.".to_owned(),
            "# TYPE s3mount_csi_mount_up gauge".to_owned(),
            format!("s3mount_csi_mount_up{{{x}}} 1"),
            format!("s3mount_csi_mount_up{{{y}}} 1"),
            format!("s3mount_csi_mount_up{{{z}}} 0"),
            "# HELP a Reads.".to_owned(),
            "# TYPE a counter".to_owned(),
            format!("a{{{x}}} 1"),
            format!("a{{{y}}} 1"),
            "# HELP b Waits.".to_owned(),
            "# TYPE b histogram".to_owned(),
            format!("b_bucket{{{x},le=\"1\"}} 2"),
            format!("b_bucket{{{y},le=\"1\"}} 2"),
        ];
        assert_eq!(page(&mounts), expected.join("\n") + "\n");
    }
}
