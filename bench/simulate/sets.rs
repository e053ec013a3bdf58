//! Parameters set on the command line, with one case for each value.

use std::{collections::BTreeMap, str::FromStr};

/// A parameter and its values, as `raise_tc_s=900,3600`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Setting {
    name: String,
    values: Vec<String>,
}

/// The value of each parameter.
pub(crate) type Chosen = BTreeMap<String, String>;

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Setting, String> {
        let wrong = || format!("`{text}`: expected a parameter and its values, like raise_tc_s=900,3600");
        let (name, values) = text.split_once('=').ok_or_else(wrong)?;
        let values: Vec<String> = values.split(',').map(|value| value.trim().to_owned()).collect();
        match name.is_empty() || values.iter().any(String::is_empty) {
            true => Err(wrong()),
            false => Ok(Setting { name: name.to_owned(), values }),
        }
    }
}

/// Every combination of values; one empty combination if nothing is set.
pub(crate) fn each(settings: &[Setting]) -> Vec<Chosen> {
    settings.iter().fold(vec![Chosen::new()], |all, setting| {
        let with = |chosen: &Chosen, value: &String| {
            let mut chosen = chosen.clone();
            chosen.insert(setting.name.clone(), value.clone());
            chosen
        };
        all.iter().flat_map(|chosen| setting.values.iter().map(move |value| with(chosen, value))).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(text: &str) -> Setting {
        text.parse().expect("a setting")
    }

    #[test]
    fn every_value_goes_with_every_other() {
        let all = each(&[setting("a=1,2"), setting("b=x, y")]);
        let told: Vec<_> = all.iter().map(|chosen| format!("{}{}", chosen["a"], chosen["b"])).collect();
        assert_eq!(told, ["1x", "1y", "2x", "2y"]);
        assert_eq!(each(&[]), [Chosen::new()], "there is one case without any");
    }

    #[test]
    fn what_is_no_setting_is_refused_with_one_that_is() {
        for wrong in ["raise_tc_s", "=900", "raise_tc_s=", "raise_tc_s=900,"] {
            let error = wrong.parse::<Setting>().expect_err(wrong);
            assert!(error.contains(wrong) && error.contains("raise_tc_s=900,3600"), "{error}");
        }
    }
}
