//! What a check has found.

use serde_json::{Value, json};

/// How well something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CheckStatus {
    /// As it should be.
    Ok,
    /// Not looked at.
    Skip,
    /// A mount works, but not as well as it could.
    Warn,
    /// A mount fails, or its readers do.
    Fail,
}

impl CheckStatus {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Skip => "skip",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// One check: a line of the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// What was looked at.
    pub(crate) name: &'static str,
    pub(crate) state: CheckStatus,
    /// What was found.
    pub(crate) said: String,
    /// What to do. It is empty if there is nothing to do, or if what was found says it.
    pub(crate) remedy: String,
}

impl Finding {
    fn new(
        state: CheckStatus,
        name: &'static str,
        said: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { name, state, said: said.into(), remedy: remedy.into() }
    }

    pub(crate) fn ok(name: &'static str, said: impl Into<String>) -> Self {
        Self::new(CheckStatus::Ok, name, said, "")
    }

    pub(crate) fn skip(name: &'static str, said: impl Into<String>) -> Self {
        Self::new(CheckStatus::Skip, name, said, "")
    }

    pub(crate) fn warn(name: &'static str, said: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(CheckStatus::Warn, name, said, remedy)
    }

    pub(crate) fn fail(name: &'static str, said: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(CheckStatus::Fail, name, said, remedy)
    }

    /// The line for a person. Names of keys and what a store says may hold anything, so control characters are left
    /// out.
    pub(crate) fn line(&self) -> String {
        let remedy = if self.remedy.is_empty() { String::new() } else { format!("; {}", self.remedy) };
        let text = format!("{:4}  {:17}  {}{remedy}", self.state.word(), self.name, self.said);
        text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
    }

    /// The same for a program.
    pub(crate) fn json(&self) -> Value {
        json!({ "name": self.name, "state": self.state.word(), "found": self.said, "remedy": self.remedy })
    }
}
